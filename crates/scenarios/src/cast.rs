//! What a role of a scenario can do: open the transport, meet the other roles, watch its resources.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ibnet::{
    Config, ConnectOptions, Connecting, Handle, Listener, RecvConnection, SendConnection,
    Transport, Wait,
};

use crate::log;
use crate::mail::{FromRole, Mail, Pipes};
use crate::play::Failure;
use crate::resources::Resources;
use crate::scenarios;
use crate::simulation::Simulation;

/// One role at work.
pub struct Cast {
    role: usize,
    devices: Vec<String>,
    mail: Mail,
    was_skipped: bool,
    /// Where the devices are simulated, if they are.
    simulation: Option<Arc<Simulation>>,
}

/// Performs one role; what this process was started for.
pub fn perform(scenario: &str, role: usize, devices: &str) -> ExitCode {
    log::install();
    let Some(play) = scenarios::all()
        .into_iter()
        .find(|play| play.name == scenario)
    else {
        eprintln!("there is no scenario {scenario}");
        return ExitCode::from(2);
    };
    let Some(act) = play.roles.get(role) else {
        eprintln!("{scenario} has no role {role}");
        return ExitCode::from(2);
    };
    let mut cast = Cast {
        role,
        devices: devices.split(',').map(str::to_owned).collect(),
        mail: Mail::new(Pipes),
        was_skipped: false,
        simulation: None,
    };
    match act(&mut cast) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if cast.was_skipped => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "\n  role {role} of {scenario} on {}: {error}",
                cast.device()
            );
            ExitCode::FAILURE
        }
    }
}

impl Cast {
    /// A role that is played on simulated devices.
    pub(crate) fn simulated(
        role: usize,
        devices: Vec<String>,
        mail: Mail,
        simulation: Arc<Simulation>,
    ) -> Self {
        Self {
            role,
            devices,
            mail,
            was_skipped: false,
            simulation: Some(simulation),
        }
    }

    pub(crate) fn role(&self) -> usize {
        self.role
    }

    /// Name of the device that this role plays on; those of its members if it is a virtual one.
    pub(crate) fn device(&self) -> &str {
        // `split` gives at least one.
        &self.devices[self.role % self.devices.len()]
    }

    /// The devices that this role's device is made of.
    pub(crate) fn members(&self) -> impl Iterator<Item = &str> {
        self.device().split('+')
    }

    /// The device of each end of the place: one, or two.
    pub(crate) fn devices(&self) -> &[String] {
        &self.devices
    }

    /// The most devices that an end of the place has: so many pairs there are.
    pub(crate) fn pairs(&self) -> usize {
        let counts = self.devices.iter().map(|end| end.split('+').count());
        counts.max().unwrap_or(1)
    }

    /// Whether the devices are simulated, and therefore fast.
    pub(crate) fn is_simulated(&self) -> bool {
        self.simulation.is_some()
    }

    /// A transport with this role's device alone: as device 0 unless it is a virtual one.
    pub(crate) fn transport(&self) -> Result<Transport, Failure> {
        self.transport_with(|_| {})
    }

    /// The same, with other settings.
    pub(crate) fn transport_with(
        &self,
        change: impl FnOnce(&mut Config),
    ) -> Result<Transport, Failure> {
        // Simulated roles meet on the loop-back interface, whatever the machine has.
        let mut config = match &self.simulation {
            None => Config::from_env()?,
            Some(_) => {
                let mut config = Config::default();
                config.interfaces = "=lo".parse().unwrap_or_default();
                config
            }
        };
        let members = self.device().replace('+', ",");
        config.hca = format!("={members}").parse()?;
        change(&mut config);
        match &self.simulation {
            None => Ok(Transport::open(config)?),
            Some(simulation) => Ok(Transport::with_library(simulation.library.clone(), config)?),
        }
    }

    /// libibverbs, or what stands for it.
    pub(crate) fn library(&self) -> Result<ibnet_verbs::Library, Failure> {
        match &self.simulation {
            None => Ok(ibnet_verbs::Library::load()?),
            Some(simulation) => Ok(simulation.library.clone()),
        }
    }

    pub(crate) fn send_mail(&self, to: usize, bytes: &[u8]) -> Result<(), Failure> {
        self.mail.tell_runner(&FromRole::Mail {
            to,
            bytes: bytes.to_vec(),
        })
    }

    pub(crate) fn receive_mail(&mut self, from: usize) -> Result<Vec<u8>, Failure> {
        self.mail.receive(from)
    }

    /// Waits until `other` has come here, too.
    pub(crate) fn meet(&mut self, other: usize) -> Result<(), Failure> {
        self.send_mail(other, b"here")?;
        match self.receive_mail(other)?.as_slice() {
            b"here" => Ok(()),
            unexpected => Err(format!("role {other} is elsewhere: {unexpected:?}").into()),
        }
    }

    /// Has the runner kill `victim`'s process.
    pub(crate) fn kill(&self, victim: usize) -> Result<(), Failure> {
        self.mail.tell_runner(&FromRole::Kill { victim })
    }

    /// The scenario cannot be played here: gives the error to return.
    pub(crate) fn skip(&mut self, why: &str) -> Failure {
        self.was_skipped = true;
        match self.mail.tell_runner(&FromRole::Skip {
            why: why.to_owned(),
        }) {
            Ok(()) => why.into(),
            Err(error) => error,
        }
    }

    /// Tells `to` where `listener` waits.
    pub(crate) fn publish(&self, to: usize, listener: &Listener) -> Result<(), Failure> {
        self.send_mail(to, &listener.handle().to_bytes())
    }

    /// Learns where `from` waits.
    pub(crate) fn learn(&mut self, from: usize) -> Result<Handle, Failure> {
        Ok(Handle::from_bytes(&self.receive_mail(from)?)?)
    }

    /// The index of this role's device.
    pub(crate) fn nic(&self, transport: &Transport) -> Result<usize, Failure> {
        let members: Result<Vec<usize>, _> =
            self.members().map(|name| transport.device(name)).collect();
        // The same set is the same virtual device, however often it is asked for.
        Ok(transport.merge(&members?)?)
    }

    /// Listens on this role's device.
    pub(crate) fn listen(&self, transport: &Transport) -> Result<Listener, Failure> {
        Ok(transport.listen(self.nic(transport)?)?)
    }

    /// Begins to connect this role's device.
    pub(crate) fn connect(
        &self,
        transport: &Transport,
        handle: &Handle,
    ) -> Result<Connecting, Failure> {
        let device = self.nic(transport)?;
        Ok(transport.connect(device, handle, ConnectOptions::default())?)
    }

    /// Accepts a connection from `from`.
    pub(crate) fn accept_from(
        &mut self,
        from: usize,
        transport: &Transport,
    ) -> Result<RecvConnection, Failure> {
        let mut listener = self.listen(transport)?;
        self.publish(from, &listener)?;
        Ok(listener.accept().wait()?)
    }

    /// Connects to `to`.
    pub(crate) fn connect_to(
        &mut self,
        to: usize,
        transport: &Transport,
    ) -> Result<SendConnection, Failure> {
        let handle = self.learn(to)?;
        Ok(self.connect(transport, &handle)?.wait()?)
    }

    /// What this process and its device hold while `other`, which calls this as well, has its
    /// transport open, too, and nothing more.
    pub(crate) fn baseline(&mut self, other: usize) -> Result<Resources, Failure> {
        self.meet(other)?;
        let now = self.resources()?;
        self.meet(other)?;
        Ok(now)
    }

    /// What this process and its device hold now.
    pub(crate) fn resources(&self) -> Result<Resources, Failure> {
        match &self.simulation {
            None => Resources::count(self.members()),
            Some(simulation) => Ok(Resources::simulated((simulation.objects)())),
        }
    }

    /// Waits until no more is held than `before`: the kernel releases some things a moment later.
    pub(crate) fn expect_resources(&self, before: &Resources) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let now = self.resources()?;
            if now.is_at_most(before) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("something is left behind: {before} before, {now} now").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Fails with `what` unless `condition` holds.
pub(crate) fn ensure(condition: bool, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if condition {
        Ok(())
    } else {
        Err(what().into())
    }
}
